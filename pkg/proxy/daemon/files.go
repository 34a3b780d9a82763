package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
)

// configurationFiles returns the files that configure the daemon, with their present content, so that no later change
// is missed.
//
// Tokens and certificates in files that a kubeconfig names are not among them: client-go reads those again by itself,
// a token after a minute, and certificates and the authority's after five.
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
		_, err := o.connect(cluster.Options{Log: log})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return append(files, kubeconfig), nil
}

// watchFiles ends the daemon when one of its configuration files changes, so that its supervisor starts it
// anew. The rules stay.
func (d *daemon) watchFiles(ctx context.Context) error {
	var watches []func(context.Context) error
	for _, file := range d.files {
		watches = append(watches, func(ctx context.Context) error { return file.Watch(ctx, d.log) })
	}
	return cli.Together(ctx, watches...)
}
