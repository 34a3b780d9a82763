// Package demand estimates how much of a Service's connections each zone asks for, from what nodes counted, and decides
// when an estimate differs enough from what was said before. It is pure: time comes with each sample, and whoever
// collects samples or writes results is elsewhere.
package demand
