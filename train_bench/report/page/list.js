"use strict";
// The choice of results to compare: a page of their own, named by its address.

const MOST_CHOSEN = 30;
const boxes = () => [...document.querySelectorAll("input[data-result]")].filter((box) => box.checked);
function showChoice() {
  const count = boxes().length;
  document.getElementById("compare").disabled = count < 2 || count > MOST_CHOSEN;
  document.getElementById("chosen").textContent = count > MOST_CHOSEN ? `${count} are chosen; at most ${MOST_CHOSEN} are compared.` : count ? `${count} chosen.` : "Choose two or more of one benchmark.";
}
document.addEventListener("change", showChoice);
document.getElementById("compare").addEventListener("click", () => {
  const names = boxes().map((box) => box.dataset.result);
  location.href = `/beside/${names.reverse().join("/")}`; // the oldest first, which the others are compared with
});
showChoice();
