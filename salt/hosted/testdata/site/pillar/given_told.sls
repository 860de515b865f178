#!told an argument
{{ nothing }}
