//go:build !thorough

package storetest

// Thorough tells whether the tests were built with the tag thorough, as CI builds them. Without it, loops over random
// steps and races run fewer rounds, and of combinations that do not depend on each other each pair is tried, not each
// product.
const Thorough = false
