// Package monitoring checks the monitoring of a program: its alerts and its dashboard in manifests/monitoring. promtool
// checks that they are valid and that alerts fire when they should; a comparison with the program's metrics checks that
// the metrics that they use exist. Only tests import it.
package monitoring
