package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/topologypublisher"
)

// publishTopology publishes TopologySlices until ctx ends, if --publish-topology is set.
func (w *webhook) publishTopology(ctx context.Context) error {
	if !w.flags.publishTopology {
		return nil
	}
	identity, err := os.Hostname() // in a pod: the pod's name
	if err != nil {
		return fmt.Errorf("--publish-topology: get the name of this replica: %w", err)
	}
	return topologypublisher.Run(ctx, w.manager.GetConfig(), topologypublisher.Options{
		Namespace: w.flags.namespace, Identity: identity, DefaultKeys: w.settings.defaultKeys,
		Log: w.log, Observer: w.recorder,
	})
}

// defaultKeys returns the default topology keys of Services without preferences; empty if there are none.
func (s *settings) defaultKeys() string {
	if given := s.current().Default; given != nil && given.Setting == rules.TopologyKeys {
		return given.Value
	}
	return ""
}
