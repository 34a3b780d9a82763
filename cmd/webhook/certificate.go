package main

import (
	"context"
	"log/slog"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// newCertificate returns the certificate of --cert-source.
func newCertificate(
	ctx context.Context, connection kube.Connection, flags *runFlags, observer certs.Observer, log *slog.Logger,
) (certs.Source, error) {
	if flags.certSource == certFiles {
		return certs.NewFiles(ctx, certs.FilesSettings{
			Certificate: flags.certFile, Key: flags.keyFile, Log: log, Observer: observer,
		})
	}
	config, err := connection.Config()
	if err != nil {
		return nil, err
	}
	return certs.NewSelfSigned(config, certs.Settings{
		Namespace: flags.namespace, Secret: flags.secret, Mutating: flags.mutating, Validating: flags.validating,
		Names: certs.ServiceNames(flags.service, flags.namespace),
		CA:    certs.DefaultCA, Leaf: certs.DefaultLeaf, TrustDelay: certs.DefaultTrustDelay,
		Log: log, Observer: observer,
	})
}
