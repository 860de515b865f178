base:
  '*':
    - plain
    - functions
    - failing
    - refused
    - unknown
    - imports_salt
    - makos
    - objects
    - uppers
    - virtuals
  'db*':
    - database
