"""The sample agent: a small shop, its support desk, and a payment gateway with a ledger file."""
