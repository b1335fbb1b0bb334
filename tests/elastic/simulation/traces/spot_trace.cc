// Derived from traces/p3-trace.csv of the project Bamboo (github.com/uclasystem/bamboo; "Bamboo:
// Making Preemptible Instances Resilient for Affordable Training of Large DNNs", NSDI 2023):
// instants in minutes, instances by their numbers.
//
// MIT License, Copyright (c) 2022 UCLASystem
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction,
// including without limitation the rights to use, copy, modify, merge, publish, distribute,
// sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all copies or
// substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
// NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
// NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
// DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
#include "tests/elastic/simulation/traces/spot_trace.h"

#include <sstream>

namespace heddle::elastic {
namespace {

// "MINUTE:+JOINS-LOST-LOST…"
constexpr const char* kText =
    "0:+18 1:+1 3:+4 5:+1 6:+1 7:+2 11:+2 13:+1 24:+1 25:+1 34:-19-11-17-3 43:+4 "
    "51:-1-22-34-28-31-2 53:-13-29-20 54:-15 55:-30 57:-21-23-24 59:-26-4-16 61:+6 65:+2 67:+1 "
    "69:+1 70:+3 71:+4 77:-37 79:-10-49 80:+1 81:+1 83:+1 85:-54-18-7 87:-47 89:-42-32 90:+1 "
    "96:+1 97:+4 105:-5 107:-46 121:+1 122:+1 140:-62 141:-52-25-12-58-59 142:-43 143:-45-51 "
    "150:+4 153:+1 154:+1 160:+2 161:+1 164:-73 167:+1 168:-72 171:+1 178:-61-27-8-35-68-64 "
    "182:-56-69-9 190:+3 192:-75 193:+1 199:+5 201:+1 218:-83-81 219:+1 230:-84 234:+2 "
    "235:-44-14-6 236:-78-40-82 237:-63-38-70 241:+3 245:-79-41-74 256:+2 261:-48 262:+1 265:-90 "
    "267:-36 269:-53-92-85-94 277:+3 278:+6 279:+1 280:+3 283:-100-80-101-99-97-76 284:+1 285:-93 "
    "294:+2 295:+3 296:+1 299:-98 300:+1 305:-109-111 309:+2 338:-115-104-89 340:-71-108-33 "
    "342:-57 346:-106-55 348:-110 351:+2 352:+1 354:-50-60-91-118 356:-107 357:+1 363:+2 366:+7 "
    "367:+2 374:-88 376:+1 382:-128-65-96 395:+1 399:+2 402:-103 404:-133-114-124-120-87-117 "
    "406:-125-129-105-131 408:-123-130-112 416:+3 420:+1 424:-39 431:+8 435:+3 443:-132 "
    "449:-95-146-119-147 451:-140 455:-102-127-136 463:-151-148 467:-116 469:-134-77 489:+2 "
    "491:+1 492:+1 495:+1 496:+1 500:-157-150-145-122 502:-113-86-152-149 504:-139-143 "
    "506:-155-156 508:-144 511:+1 512:+1 514:-66 515:+1 519:+1 521:+4 524:+1 527:-138-121-153 "
    "529:-166 537:+2 543:+1 545:-137-169 547:-126 549:-67 559:+1 562:+1 563:+2 567:+1 573:-174 "
    "576:+1 585:-159 587:-170 591:-167 594:+1 595:+1 607:-163-164 611:-165 613:-175 666:-171 "
    "680:-176-142 682:-172 ";

}  // namespace

std::vector<SpotInstant> SpotTrace() {
  std::vector<SpotInstant> trace;
  std::istringstream words(kText);
  int minute = 0;
  for (char separator = 0; words >> minute >> separator;) {
    SpotInstant& instant = trace.emplace_back();
    instant.minute = minute;
    while (words.peek() == '+' || words.peek() == '-') {
      const bool joins = words.get() == '+';
      int number = 0;
      words >> number;
      if (joins) {
        instant.joins = number;
      } else {
        instant.lost.push_back(number);
      }
    }
  }
  return trace;
}

}  // namespace heddle::elastic
