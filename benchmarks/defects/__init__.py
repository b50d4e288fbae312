"""Commands that once failed on modules of users, and what each of them must give today."""
