// Package servicefindings collects which parts of Services do not work, from the decisions about them. collector.go
// limits how many findings a sync reports.
package servicefindings
