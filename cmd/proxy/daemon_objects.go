package main

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/events"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

// objects is where the cluster's objects come from: a folder of manifests, or an API server.
type objects interface {
	// Run delivers everything first, and then what changes, until ctx ends.
	Run(ctx context.Context, deliver func(source.Update)) error
}

// manifests is the folder as a source for the daemon.
type manifests struct{ *source.Manifests }

// Run is that of the folder, with what it was about in the error.
func (m manifests) Run(ctx context.Context, deliver func(source.Update)) error {
	if err := m.Manifests.Run(ctx, deliver); err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	return nil
}

// connect returns the cluster, and a recorder of Events for it. Nothing is asked yet.
func (o *daemonOptions) connect(options apiserver.Options) (*apiserver.Cluster, *events.Recorder, error) {
	config, err := o.Connection.Config()
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	options.Node, options.ServiceProxyName = o.Node, o.ServiceProxyName
	cluster, err := apiserver.New(config, options)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	recorder, err := events.Connect(config, o.Node, options.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return cluster, recorder, nil
}
