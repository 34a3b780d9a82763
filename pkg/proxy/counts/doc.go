// Package counts counts the Service ports in force, for the metrics.
package counts
