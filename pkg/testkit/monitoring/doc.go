// Package monitoring checks what people watch a program with: its alerts and its dashboard in manifests/monitoring.
// Prometheus' own tool says whether they are understood and fire when they should; the program's metrics say whether
// they are about something that exists. Only tests import it.
package monitoring
