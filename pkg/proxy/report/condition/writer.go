package condition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// attemptTimeout limits one attempt, so that a server that never responds delays little.
const attemptTimeout = 10 * time.Second

// retries are the pauses after failed attempts: a pod may wait for the condition, and a missing permission may be
// missing for days.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 8, Cap: 30 * time.Second}

// Writer writes the condition of one Node. The methods Set and Recheck of a nil Writer do nothing.
type Writer struct {
	node  string
	nodes corev1client.NodeInterface
	log   *slog.Logger
	// OnAttempt is called after each attempt, with whether it failed; it may be nil.
	OnAttempt func(bool)

	state   atomic.Pointer[State] // the desired condition; nil until Set is called
	recheck notify.Signal         // holds a signal if the Node should be checked
}

// NewWriter returns a writer for the Node of a proxy, at the API server of config. It sends no request yet.
func NewWriter(config *rest.Config, node string, log *slog.Logger) (*Writer, error) {
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for Nodes: %w", err)
	}
	return &Writer{node: node, nodes: client.Nodes(), log: log, recheck: notify.NewSignal()}, nil
}

// Set sets the desired condition. It does not block.
func (w *Writer) Set(state State) {
	if w == nil {
		return
	}
	w.state.Store(&state)
	w.Recheck()
}

// Recheck makes the writer check the Node again, which may have been deleted and registered again. It does not block.
func (w *Writer) Recheck() {
	if w == nil {
		return
	}
	w.recheck.Notify()
}

// Run writes the condition until ctx ends. The error is always nil.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.recheck:
			w.writeWithRetries(ctx)
		}
	}
}

// writeWithRetries retries until the Node has the desired condition. A failure is logged once.
func (w *Writer) writeWithRetries(ctx context.Context) {
	for pauses, failed := retries, false; ; failed = true {
		err := w.write(ctx)
		if ctx.Err() != nil {
			return
		}
		if w.OnAttempt != nil {
			w.OnAttempt(err != nil)
		}
		if err == nil {
			return
		}
		if !failed {
			w.log.Error("failed to write the Node's condition; retrying", "condition", Type, "error", err, "do", remedy(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.recheck:
			pauses = retries
		case <-time.After(pauses.Step()):
		}
	}
}

// write makes one attempt. A missing Node is not a failure: it is checked again when it is created.
func (w *Writer) write(ctx context.Context) error {
	state := w.state.Load()
	if state == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	node, err := w.read(ctx)
	if err != nil || node == nil {
		return err
	}
	patch, isNeeded, err := patchOf(node, *state, time.Now())
	if err != nil || !isNeeded {
		return err
	}
	if _, err := w.nodes.Patch(ctx, w.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("patch status of Node %s: %w", w.node, err)
	}
	w.log.Info("wrote the Node's condition", "condition", Type, "status", state.Status, "reason", state.Reason)
	return nil
}

// read returns the Node; nil means that there is none. It uses list, which the role allows; the API server finds the
// one Node by its key.
func (w *Writer) read(ctx context.Context) (*corev1.Node, error) {
	list, err := w.nodes.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.node).String()})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read Node %s: %w", w.node, err)
	case len(list.Items) == 0:
		return nil, nil //nolint:nilnil // there is none
	}
	return &list.Items[0], nil
}

// remedy returns what to do about a failure.
func remedy(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return "apply the component manifests/node-condition, which grants the permission to a token bound to its pod and node, " +
			"or remove --node-condition"
	}
	return "nothing: it is written as soon as the API server responds"
}
