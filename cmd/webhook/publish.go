package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/topologypublisher"
)

// publishTopology publishes TopologySlices until ctx ends, if --publish-topology is set.
func (s *webhook) publishTopology(ctx context.Context) error {
	if !s.flags.publishTopology {
		return nil
	}
	identity, err := os.Hostname() // in a pod: the pod's name
	if err != nil {
		return fmt.Errorf("--publish-topology: get the name of this replica: %w", err)
	}
	return topologypublisher.Run(ctx, s.manager.GetConfig(), topologypublisher.Options{
		Namespace: s.flags.namespace, Identity: identity, DefaultKeys: s.settings.defaultKeys,
		Log: s.log, Observer: s.recorder,
	})
}

// defaultKeys returns the default topology keys of Services without preferences; empty if there are none.
func (s *settings) defaultKeys() string {
	if given := s.current().Default; given != nil && given.Setting == rules.TopologyKeys {
		return given.Value
	}
	return ""
}
