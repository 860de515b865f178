#!pyobjects
from salt.utils.pyobjects import StateFactory
File.managed("/tmp/x", user="root")
