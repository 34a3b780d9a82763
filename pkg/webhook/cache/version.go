package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// An upgrade changes the version of an API server. No watch reports that, so it is polled.
const (
	versionInterval        = time.Minute
	initialVersionInterval = time.Second // until the version is known
	versionTimeout         = 10 * time.Second
)

// FollowVersion polls the version of an API server until ctx ends. The last known version is kept while requests fail.
func (c *Cache) FollowVersion(ctx context.Context, config *rest.Config, log *slog.Logger) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("create discovery client: %w", err)
	}
	logged := ""
	for {
		found, err := fetchVersion(ctx, client.RESTClient())
		switch {
		case err == nil:
			logged = ""
			c.version.Store(found)
		case err.Error() != logged && ctx.Err() == nil: // once, not with every request
			logged = err.Error()
			c.logVersionError(log, err)
		}
		interval := versionInterval
		if c.Version() == nil {
			interval = initialVersionInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func (c *Cache) logVersionError(log *slog.Logger, err error) {
	if known := c.Version(); known != nil {
		log.Warn("failed to get the version of Kubernetes; assuming the last known one", "known", known.String(), "error", err)
		return
	}
	log.Warn("failed to get the version of Kubernetes; Services get no default trafficDistribution until it is known", "error", err)
}

func fetchVersion(ctx context.Context, api rest.Interface) (*version.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	text, err := api.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get the version of Kubernetes: %w", err)
	}
	var response apiversion.Info
	if err := json.Unmarshal(text, &response); err != nil {
		return nil, fmt.Errorf("parse the version of Kubernetes: %w", err)
	}
	found, err := supportedVersion(response)
	if err != nil {
		return nil, fmt.Errorf("parse the version of Kubernetes: %w", err)
	}
	return found, nil
}

// supportedVersion returns the version that an API server emulates: during an upgrade that may be an older one, and
// then the server rejects fields and values which that version lacks (KEP-4330).
func supportedVersion(response apiversion.Info) (*version.Version, error) {
	if response.EmulationMajor != "" && response.EmulationMinor != "" {
		return version.ParseGeneric(response.EmulationMajor + "." + response.EmulationMinor)
	}
	return version.ParseGeneric(response.GitVersion) // vendors append text to the numbers
}

// Version returns the version that the API server emulates; nil if it is unknown.
func (c *Cache) Version() *version.Version { return c.version.Load() }
