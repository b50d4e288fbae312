"""What was compiled before: programs and machine code in a folder of the user's."""
