package render

import (
	"context"
	"errors"
	"regexp"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// yaml reads a document in Go. If Go's reader refuses it, a worker reads it with Salt's own reader,
// for the value or for Salt's error text.
func (j *job) yaml(ctx context.Context, text string) (any, error) {
	if unsure.MatchString(text) {
		return j.ask(ctx, "yaml", text)
	}
	v, err := loadYAML(text)
	var e *yaml11.Error
	if errors.As(err, &e) && e.TooLarge {
		return nil, &problem{e.Error(), e.Line}
	}
	if err != nil {
		j.r.m.yamlFallbacks.Inc()
		return j.ask(ctx, "yaml", text)
	}
	return v, nil
}

// unsure matches documents that the two readers judge differently: tabs where a line or a value
// starts, damaged binary data, and lists that configuration files mark as !!omap.
var unsure = regexp.MustCompile(`(?m)^ *\t|[?:-] *\t|!!binary|omap`)

// loadYAML is Salt's yaml renderer. An empty document, false, 0 or an empty value is an empty map.
func loadYAML(text string) (any, error) {
	v, err := yaml11.Load([]byte(text))
	if err != nil {
		return nil, err
	}
	if !value.Truth(v) {
		return value.Map{}, nil
	}
	return v, nil
}
