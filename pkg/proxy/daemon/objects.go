package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/authorization"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
)

// objects is where the cluster's objects come from: a folder of manifests, or an API server.
type objects interface {
	// Run delivers everything first, and then what changes, until ctx ends.
	Run(ctx context.Context, deliver func(convert.Update)) error
	// Refusals returns the objects that are refused, with the versions in force. Any goroutine may ask.
	Refusals() []convert.Refusal
}

// manifests is the folder as a source for the daemon.
type manifests struct{ *folder.Manifests }

// Run runs the folder, and adds to its error what it was doing.
func (m manifests) Run(ctx context.Context, deliver func(convert.Update)) error {
	if err := m.Manifests.Run(ctx, deliver); err != nil {
		return fmt.Errorf("load manifests: %w", err)
	}
	return nil
}

// connection is what the daemon needs of an API server.
type connection struct {
	cluster  *cluster.Watcher
	recorder *events.Recorder
	ask      authorization.Ask
	dialled  *kube.Dialled // where all clients reach it
	// condition is nil if none should be written.
	condition *condition.Writer
}

// connect makes the clients. Nothing is asked yet.
func (o *Options) connect(options cluster.Options) (connection, error) {
	config, err := o.Connection.Config()
	if err != nil {
		return connection{}, fmt.Errorf("connect to the API server: %w", err)
	}
	c := connection{dialled: kube.NewDialled(config), ask: authorization.Connect(config)}
	options.View = o.View
	options.NodeTopology, options.TopologyNamespace, options.Proxies = o.NodeTopology, o.TopologyNamespace, o.ProxyService
	var errs [3]error
	c.cluster, errs[0] = cluster.New(config, options)
	c.recorder, errs[1] = events.Connect(config, o.Node, options.Log)
	if o.NodeCondition {
		c.condition, errs[2] = condition.Connect(config, o.Node, options.Log)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return connection{}, fmt.Errorf("connect to the API server: %w", err)
	}
	return c, nil
}
