// Package muxcore is the core.
package muxcore
