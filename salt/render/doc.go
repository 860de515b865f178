// Package render turns SLS files into values. Jinja, YAML, JSON, gpg and Python renderers form the
// pipeline that a file's first line names.
//
// Lives here: the pipelines, the embedded CPython with jinja2 and PyYAML and its unpacking, the
// workers and their limits, the gpg renderer, the cache of renders, and the worker's own program
// (folder worker). Does not: find SLS files, top files and includes, or merge (package pillar); run
// the functions that templates call (the Host).
//
// Guarantee: whatever a template does, its render ends with a value or an error within its time and
// memory, and the next render works.
//
// A Host may also implement FunctionLister, Overrider, StageRunner and FileNamer.
package render
