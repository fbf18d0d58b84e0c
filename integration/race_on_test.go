//go:build race

package integration_test

// raced says that the tests, and with them the Caddy under test, look for data races.
const raced = true
