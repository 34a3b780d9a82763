package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
)

// configurationFiles returns the files that configure the daemon, with their current content, so that no later change
// is missed.
//
// Token and certificate files that a kubeconfig names are not included: client-go reloads those by itself, a token
// after a minute, and client and CA certificates after five.
func (o *Options) configurationFiles(log *slog.Logger) ([]filewatch.File, error) {
	var files []filewatch.File
	if o.ConfigFile != nil {
		files = append(files, o.ConfigFile.Watched())
	}
	path := o.Connection.Kubeconfig
	if o.Manifests != "" || path == "" {
		return files, nil
	}
	kubeconfig, err := filewatch.Read(path, func() error {
		_, err := o.connect(apiserver.Options{Log: log})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return append(files, kubeconfig), nil
}

// newFiles returns the component that ends the daemon when one of its configuration files changes, so that its
// supervisor restarts it. The rules stay.
func newFiles(c *common) (component, error) {
	files, err := c.options.configurationFiles(c.log)
	if err != nil {
		return component{}, err
	}
	var watches []func(context.Context) error
	for _, file := range files {
		watches = append(watches, func(ctx context.Context) error { return file.Watch(ctx, c.log) })
	}
	return component{run: func(ctx context.Context) error { return cli.RunAll(ctx, watches...) }}, nil
}
