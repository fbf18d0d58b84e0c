//go:build !race

package integration_test

const raced = false
