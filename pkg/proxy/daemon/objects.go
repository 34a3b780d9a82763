package daemon

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
)

// objects is where the cluster's objects come from: a folder of manifests, or an API server.
type objects interface {
	// Run delivers everything first, and then what changes, until ctx ends.
	Run(ctx context.Context, deliver func(convert.Update)) error
}

// manifests is the folder as a source for the daemon.
type manifests struct{ *folder.Manifests }

// Run is that of the folder, with what it was about in the error.
func (m manifests) Run(ctx context.Context, deliver func(convert.Update)) error {
	if err := m.Manifests.Run(ctx, deliver); err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	return nil
}

// view says which objects concern this proxy.
func (o *Options) view() convert.View {
	return convert.View{Node: o.Node, ServiceProxyName: o.ServiceProxyName, DefaultMaxLoad: o.DefaultMaxLoad}
}

// connect returns the cluster, a recorder of Events for it, and where both reach the API server. Nothing is asked yet.
func (o *Options) connect(options cluster.Options) (*cluster.Watcher, *events.Recorder, *kube.Dialled, error) {
	config, err := o.Connection.Config()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	dialled := kube.NewDialled(config)
	options.View = o.view()
	cluster, err := cluster.New(config, options)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	recorder, err := events.Connect(config, o.Node, options.Log)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return cluster, recorder, dialled, nil
}
