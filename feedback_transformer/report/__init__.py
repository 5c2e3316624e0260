"""From records to tables and pictures; never trains."""
