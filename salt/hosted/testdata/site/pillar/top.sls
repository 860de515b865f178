base:
  '*':
    - plain
    - functions
    - failing
    - refused
    - salts_own
    - unknown
    - imports_salt
    - makos
    - given
    - objects
    - uppers
    - virtuals
  'db*':
    - database
