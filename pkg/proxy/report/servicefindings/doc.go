// Package servicefindings collects which parts of Services do not work, from the decisions about them.
package servicefindings
