package events

import (
	"fmt"
	"log/slog"

	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
)

// Connect returns a recorder for the proxy of a node that tells the API server of a configuration. Nothing is asked yet.
func Connect(config *rest.Config, node string, log *slog.Logger) (*Recorder, error) {
	client, err := eventsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Events: %w", err)
	}
	return New(client, node, log), nil
}
