// Package servicefindings collects what of Services does not work, from the decisions about them.
package servicefindings
