"use strict";
// The server renders the page; what changes comes as the same HTML again.
const view = document.querySelector("main"), live = document.getElementById("live");
const url = new URL(location.href);
url.search = "?events";
const source = new EventSource(url);
source.onopen = () => { live.className = "on"; live.textContent = "live"; };
source.onerror = () => { live.className = ""; live.textContent = "not connected, trying again"; };
source.onmessage = (event) => { view.innerHTML = event.data; };
