#!upper loud|yaml
uppers: '@NAME@'
