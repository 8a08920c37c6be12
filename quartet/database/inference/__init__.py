"""What a database does not declare, inferred with a confidence and a reason."""
