"""Where the library meets the outside: engines, servers, clients.  Nothing is imported here."""
