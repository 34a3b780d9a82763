// Package servicefindings collects the findings about Services from the decisions about them. collector.go limits how
// many findings a sync reports.
package servicefindings
