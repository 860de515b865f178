// Package chart draws bars and lines as SVG, for the figures in docs.
//
// Lives here: scales, ticks, legends, and how numbers are written in figures.
// Does not: what is measured.
//
// Guarantee: equal input gives equal bytes.
package chart
