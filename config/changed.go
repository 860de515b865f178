package config

import (
	"maps"
	"reflect"
	"slices"
)

// Changed lists the options whose values differ between two configurations, sorted.
func Changed(before, now *Options) []string {
	var names []string
	a, b := reflect.ValueOf(before).Elem(), reflect.ValueOf(now).Elem()
	inFields := make(map[string]bool)
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("opt")
		if name == "" {
			continue
		}
		inFields[name] = true
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	for _, o := range []struct{ these, those map[string]any }{{before.Extra, now.Extra},
		{now.Extra, before.Extra}} {
		for name, v := range o.these {
			if !inFields[name] && !reflect.DeepEqual(v, o.those[name]) &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// With returns a copy of o in which the named options are those of now.
func (o *Options) With(now *Options, names []string) *Options {
	out := *o
	out.Extra = maps.Clone(o.Extra)
	to, from := reflect.ValueOf(&out).Elem(), reflect.ValueOf(now).Elem()
	for i := range to.NumField() {
		if slices.Contains(names, to.Type().Field(i).Tag.Get("opt")) {
			to.Field(i).Set(from.Field(i))
		}
	}
	for _, name := range names {
		if v, given := now.Extra[name]; given {
			out.Extra[name] = v
		} else {
			delete(out.Extra, name)
		}
	}
	return &out
}
