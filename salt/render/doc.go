// Package render turns SLS files into values: Jinja, YAML, JSON, gpg and Python
// renderers, joined to pipelines by the first line of a file.
//
// Lives here: the pipelines, the embedded CPython with jinja2 and PyYAML and its
// unpacking, the workers and their limits, the gpg renderer, the cache of
// renders, and the worker's own program (folder worker).
// Does not: finding SLS files, top files and includes, merging (package pillar);
// the functions that templates call (whoever is the Host).
//
// Guarantee: a render ends with a value or an error within its time and memory,
// whatever the template does, and the next render works.
//
// A Host may have two methods more, see FunctionLister and FileNamer.
package render
