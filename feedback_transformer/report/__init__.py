"""Turns records into tables and figures; never trains."""
