//go:build thorough

package storetest

// Thorough tells whether the tests were built with the tag thorough, as CI builds them.
const Thorough = true
