package apiserver

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retryMax bounds the pause between two attempts of a request that got no response.
const retryMax = 5 * time.Second

// noResponseBackoff are the pauses after requests without a response: 0.5 to 1 s at first, and 2.5 to 5 s from the
// fourth on. The jitter at most doubles a pause. It spreads the requests when the API server is back: each proxy of a
// large cluster has four or five streams.
var noResponseBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: retryMax / 2}

// retryUntilResponse repeats a request until it gets any response, even an error, or until the context ends. failed is
// called with the error after each attempt without a response.
//
// Reflectors would retry, too. But the pause between their attempts grows to a minute, and they wait for its end even
// if the API server has long been back (client-go v0.37, tools/cache/reflector.go). Their option Backoff shortens it
// for every failure: an API server that responds with errors would get five times as many requests. A request that is
// retried here is a single request to a Reflector, so its pauses stay at their initial length. Nor does the Reflector
// list again when a connection breaks, as it does after every failure that it sees, except a refused connection.
//
// The request stays unchanged, with the version from which a watch continues. If the API server no longer has that
// version, it returns 410, and the Reflector lists again.
func retryUntilResponse[T any](ctx context.Context, onFailure func(error), request func() (T, error)) (T, error) {
	var response, zero T
	var requestErr error
	// If the context has ended, return its error rather than the last attempt's: after some of those Reflectors would
	// wait.
	err := noResponseBackoff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		response, requestErr = request()
		if hasResponse(requestErr) {
			return true, nil
		}
		onFailure(requestErr)
		return false, nil
	})
	if err != nil {
		return zero, err
	}
	return response, requestErr
}

// hasResponse reports whether the error, or nil, of a request means that the API server responded. All error responses
// have a status, including those of a proxy in front of the API server. A missing or broken connection, an untrusted
// certificate and an unreadable response have none.
func hasResponse(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}
