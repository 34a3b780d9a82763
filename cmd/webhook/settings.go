package main

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/config"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// settings are the active settings: those of the last valid version of the file.
type settings struct {
	file      *config.File // nil without a file
	namespace string
	recorder  *metrics.Recorder
	log       *slog.Logger
	active    atomic.Pointer[rules.Settings]
}

// readSettings reads the file, which must be valid at startup.
func readSettings(flags *runFlags, recorder *metrics.Recorder, log *slog.Logger) (*settings, error) {
	s := &settings{namespace: flags.namespace, recorder: recorder, log: log}
	if flags.config == "" {
		s.activate(config.Default())
		return s, nil
	}
	file, err := config.Read(flags.config)
	if err != nil {
		return nil, err
	}
	s.file = file
	s.activate(file.Settings)
	return s, nil
}

func (s *settings) current() *rules.Settings { return s.active.Load() }

// activate activates settings. The webhook's own namespace never gets defaults, because its Service must not depend on
// the webhook.
func (s *settings) activate(next *rules.Settings) {
	active := *next
	active.ExcludedNamespaces = append(slices.Clone(next.ExcludedNamespaces), s.namespace)
	s.active.Store(&active)
	s.recorder.ConfigurationUpdated(time.Now())
}

// follow activates later versions of the file if they are valid.
func (s *settings) follow(ctx context.Context) error {
	if s.file == nil {
		return nil
	}
	return s.file.Follow(ctx, s.log, s.activate, func(error) { s.recorder.ConfigurationFailed() })
}
