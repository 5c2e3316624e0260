"""What a command of several parts does: it trains, and shows what came out."""
