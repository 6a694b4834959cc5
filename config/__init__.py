"""The site around the two apps: settings, addresses, servers."""
