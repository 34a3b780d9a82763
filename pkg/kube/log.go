package kube

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// LogTo sends what client-go has to say to a log. It concerns the whole process: a program calls it once, at its start.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }
