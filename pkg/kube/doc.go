// Package kube says how an API server is reached, and where client-go's log goes.
package kube
