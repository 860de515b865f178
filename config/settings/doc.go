// Package settings turns the options of the configuration into the Options of each package.
//
// Lives here: which option sets which field, and the few that are computed from others.
//
// Does not: read or check the configuration (package config), or make anything from it
// (cmd/clustermaster). No state, no clock.
//
// Guarantee: what "clustermaster config check" builds here is what a start builds.
package settings
